from keras.src.backend.tensorflow.layer import TFLayer

NumpyLayer = TFLayer
