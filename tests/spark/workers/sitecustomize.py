"""Python workers take PySpark from where it is installed, compiled, and not from the archive of its sources.

Without this, each worker compiles what it imports, which is most of what a short batch takes.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("/pyspark.zip", "-src.zip"))]
