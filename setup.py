"""The one thing pyproject.toml cannot say: the compiled scanner is built where that is possible, and done without where it is not."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # an installation without build isolation; everything works without the extension
    extensions = []
else:
    # optional: a missing or failing compiler ends in a package without it, never in an error.
    extensions = cythonize(
        [Extension("traceread.readers._scanner", ["traceread/readers/_scanner.pyx"], optional=True)],
        build_dir="build/cython",
    )

setup(ext_modules=extensions)
