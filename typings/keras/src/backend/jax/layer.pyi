from keras.src.backend.tensorflow.layer import TFLayer

JaxLayer = TFLayer
