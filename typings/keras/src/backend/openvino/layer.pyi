from keras.src.backend.tensorflow.layer import TFLayer

OpenvinoLayer = TFLayer
