"""What `raygo.train.xgboost` offers, under the paths of Ray's newer trainers."""
