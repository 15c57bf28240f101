from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

NumpyTrainer = TensorFlowTrainer
