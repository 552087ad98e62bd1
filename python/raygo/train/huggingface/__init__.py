"""Hugging Face's libraries in a training function; see `raygo.train.huggingface.transformers`."""
