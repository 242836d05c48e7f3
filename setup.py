"""The one thing pyproject.toml cannot say: compiled readers are built where that is possible, and done without where it is not."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # an installation without build isolation; everything works without the extension
    extensions = []
else:
    compiled = [Extension(f"traceread.readers.{name}", [f"traceread/readers/{name}.pyx"]) for name in ("_pages", "_scanner")]
    extensions = cythonize(compiled, build_dir="build/cython")
    for extension in extensions:
        extension.optional = True  # a missing or failing compiler ends in a package without it, never in an error

setup(ext_modules=extensions)
