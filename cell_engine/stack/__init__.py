"""Everything one machine needs, in child processes of one command: `autofill up`.

`running.Stack` starts and supervises them, `stopping.stop` ends them from another terminal. Nothing outlives `up`: even
where that is killed, a guardian process (`guardian`) sees the end of its pipe and cleans up. This module imports
nothing, so that the guardian stays small.
"""
