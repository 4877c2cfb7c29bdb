"""From the records of runs to statistics, tables, figures and pages."""
