"""What `raygo.train` offers, under the paths of Ray's newer trainers."""
