"""The options of the explorer. Every command imports them, so they import nothing large."""

import attrs


@attrs.frozen(kw_only=True)
class Options:
    """What a pipeline may say: `explorer: {name: hill-climb, starts: 8}`."""

    starts: int = attrs.field(
        default=4,
        validator=attrs.validators.ge(1),
        metadata={"help": "best measured configurations that are climbed from at once"},
    )
