from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

OpenVINOTrainer = TensorFlowTrainer
