"""Pictures of the page: colours, marks, traces, panels, and the matplotlib back end."""

__all__ = ()
