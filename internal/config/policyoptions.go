package config

import (
	"github.com/plimsoll-dev/plimsoll"
)

// qosOptions reads the options by which nodes plan.
func (d *decoder) qosOptions(o *plimsoll.QOSOptions) func(v *value, path string) {
	return func(v *value, path string) {
		d.fields(v, path,
			field{"excess", d.number(&o.Excess)},
			field{"overdue", d.duration(&o.Overdue)},
			field{"stale", d.duration(&o.Stale)},
			field{"backoff", d.duration(&o.Backoff)},
			field{"settle", d.duration(&o.Settle)},
			field{"lag", d.duration(&o.Lag)},
		)
	}
}

// qosOptionsFile is the printed form of the options.
type qosOptionsFile struct {
	Excess  int32  `json:"excess,omitempty"`
	Overdue string `json:"overdue,omitempty"`
	Stale   string `json:"stale,omitempty"`
	Backoff string `json:"backoff,omitempty"`
	Settle  string `json:"settle,omitempty"`
	Lag     string `json:"lag,omitempty"`
}

func qosOptionsFileOf(o *plimsoll.QOSOptions) *qosOptionsFile {
	if *o == (plimsoll.QOSOptions{}) {
		return nil
	}
	return &qosOptionsFile{
		Excess: o.Excess, Overdue: FormatDuration(o.Overdue), Stale: FormatDuration(o.Stale),
		Backoff: FormatDuration(o.Backoff), Settle: FormatDuration(o.Settle), Lag: FormatDuration(o.Lag),
	}
}
