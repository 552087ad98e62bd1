"""Ray Train under the paths of its second version; it is the same trainers."""
