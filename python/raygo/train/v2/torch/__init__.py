"""What `raygo.train.torch` offers, under the paths of Ray's newer trainers."""
