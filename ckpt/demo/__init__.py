"""What `ckpt demo` shows where there is no Spark, and the stream of words that both demos count.

`ckpt.spark.demo` is the one on Spark.
"""
