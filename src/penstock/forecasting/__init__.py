"""Forecasts of load and resources, from the history that `penstock monitor` keeps. Pure: arrays in, results out.

    samples → `cleaning` → hours → `daily` → days → `models` → days to come → `crossing` → dates

Theory of operation
-------------------
A series is one metric of one broker, topic, group or the cluster. Its samples may be late, double or missing, and their
clock may jump: `cleaning` puts them on a grid of hours and counts what it had to do. Days are forecast, not hours:
growth and weeks show there, a year of them fits in milliseconds, and the shape of the day is stable enough to be laid
on top (`daily`). What crosses a threshold is the day's peak: its mean times the usual ratio of that weekday.

`models` is the mean of two models of `statsforecast`: a theta model, and a decomposition with exponential smoothing of
the trend. Together they beat each alone, and a seasonal-naive baseline (`backtest`, `python -m bench.forecast`). The
yearly season is used only with two years of history. Without them the user can give a calendar of events (`events`),
whose effect is measured where they happened before.

`history` says how much there is and what that allows. `scenarios` bend the result (best, worst, peak season, new
product, loss of a region), `crossing` finds the dates at which thresholds are crossed and orders must be placed,
`domains` sums topics by prefix, `drivers` compares them with figures of the business. `charts` and `report` draw.

numpy and statsforecast come with `pip install 'penstock-streaming[forecast]'`.
"""
