"""The ``chameleon`` command with the synthetic plugins, to be run as a process of its own."""

import sys

import chameleon_core.plugins.registry as registry


def main():
    from chameleon_core.testing.fakes import synthetic_registry

    known = synthetic_registry()
    import chameleon_core.cli.group
    import chameleon_core.pipeline.load

    for module in (registry, chameleon_core.cli.group, chameleon_core.pipeline.load):
        module.default_registry = lambda: known
    from chameleon_core.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
