"""Train, evaluate or describe the model of a YAML file: python main.py --cfg configs/GRIT/zinc-SPSE.yaml seed=3."""

if __name__ == "__main__":  # before all other imports, so that a signal ends the process with one line from here on
    from graphgps_spse.training.signals import exit_at_once, listen

    listen(exit_at_once)

from graphgps_spse.__main__ import main, parse_arguments, run_as_program

__all__ = ["main", "parse_arguments"]

if __name__ == "__main__":
    run_as_program()
