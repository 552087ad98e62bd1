"""What `raygo.train.lightgbm` offers, under the paths of Ray's newer trainers."""
