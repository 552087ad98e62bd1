"""What `raygo.train.tensorflow` offers, under the paths of Ray's newer trainers."""
