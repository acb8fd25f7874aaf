"""What a checker raises."""


class Violation(Exception):
    """A rule of the semantics was broken. `rule` names it; a plan that is cut down must go on breaking the same one."""

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule = rule


def demand(truth: object, rule: str, sentence: str) -> None:
    """Raise where it does not hold."""
    if not truth:
        raise Violation(rule, sentence)
