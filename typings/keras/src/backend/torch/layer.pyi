from keras.src.backend.tensorflow.layer import TFLayer

TorchLayer = TFLayer
