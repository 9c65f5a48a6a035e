package main

import "github.com/plimsoll-dev/plimsoll/client"

// waterlinesView are the three sets of lines by which a sample was planned.
type waterlinesView struct {
	Throttle []waterlineView `json:"throttle"`
	Restore  []waterlineView `json:"restore"`
	Evict    []waterlineView `json:"evict"`
}

// waterlineView is a line of a set, in the metric's unit.
type waterlineView struct {
	Metric   string  `json:"metric"`
	Rule     string  `json:"rule"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
	Smallest bool    `json:"smallest"` // the lowest line of its metric in the set
	Gap      float64 `json:"gap"`
}

func viewWaterlines(w *client.QOSWaterlines) waterlinesView {
	return waterlinesView{viewWaterlineSet(w.Throttle), viewWaterlineSet(w.Restore), viewWaterlineSet(w.Evict)}
}

func viewWaterlineSet(lines []client.QOSWaterline) []waterlineView {
	views := make([]waterlineView, len(lines))
	for i := range lines {
		l := &lines[i]
		views[i] = waterlineView{
			Metric: l.Metric, Rule: l.Rule, Unit: l.Unit, Smallest: l.Smallest,
			Value: float64(l.Value) / float64(l.Scale), Gap: float64(l.Gap) / float64(l.Scale),
		}
	}
	return views
}
