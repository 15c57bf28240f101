from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

JAXTrainer = TensorFlowTrainer
