"""Membership inference: was a record in the training data of a model?"""
