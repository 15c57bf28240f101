from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

TorchTrainer = TensorFlowTrainer
