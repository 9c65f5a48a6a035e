package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
	"github.com/plimsoll-dev/plimsoll/internal/metricfile"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// qosFlags configure the QoS agent, which keeps this machine at the waterlines of its policies.
type qosFlags struct {
	QOSInterval time.Duration `name:"qos-interval" help:"Time between two measurements of this machine and its tasks. Each may lead to actions of policies." default:"1s"`
	Metrics     string        `help:"Metric file: metrics of this machine beside the built-in ones, for policies." placeholder:"FILE"`

	Extended              bool   `help:"Lend unused processors and memory to best-effort tasks, as ext-cpu and ext-memory."`
	ExtendedCPUReserve    string `help:"The part of the processors that is never lent." default:"10%" placeholder:"PART"`
	ExtendedMemoryReserve string `help:"The part of the memory that is never lent." default:"10%" placeholder:"PART"`

	ExtendedWarmUp   time.Duration `help:"Time for which this machine's use is observed before any of it is lent." default:"10m"`
	ExtendedHalfLife time.Duration `help:"Time after which a peak of use counts half as much against lending." default:"24h"`
}

func (f *qosFlags) parse() (cfg agent.QOSConfig, err error) {
	if f.QOSInterval < nodeqos.MinInterval || f.QOSInterval > nodeqos.MaxInterval {
		return cfg, plimsoll.Invalid(
			"qos-interval", "is %v; give a duration from %v to %v, such as 1s", f.QOSInterval, nodeqos.MinInterval,
			nodeqos.MaxInterval,
		)
	}
	if f.ExtendedWarmUp <= 0 {
		return cfg, plimsoll.Invalid(
			"extended-warm-up", "is %v; give a duration above 0, such as 10m", f.ExtendedWarmUp,
		)
	}
	if f.ExtendedHalfLife < time.Second || f.ExtendedHalfLife > qos.MaxHalfLife {
		return cfg, plimsoll.Invalid(
			"extended-half-life", "is %v; give a duration from 1s to %v, such as 24h", f.ExtendedHalfLife,
			qos.MaxHalfLife,
		)
	}
	cfg.Extended.HalfLife = f.ExtendedHalfLife
	cfg.Interval, cfg.Extended.Enabled, cfg.Extended.WarmUp = f.QOSInterval, f.Extended, f.ExtendedWarmUp
	if cfg.Extended.CPUReserve, err = parsePart("extended-cpu-reserve", f.ExtendedCPUReserve); err != nil {
		return cfg, err
	}
	if cfg.Extended.MemoryReserve, err = parsePart("extended-memory-reserve", f.ExtendedMemoryReserve); err != nil {
		return cfg, err
	}
	if f.Metrics != "" {
		cfg.Metrics, err = metricfile.Load(f.Metrics)
	}
	return cfg, err
}

// parsePart reads a part of a whole as a percentage: 10% and 0.1 are the same.
func parsePart(flag, text string) (percent int32, err error) {
	digits, written := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if err == nil && !written {
		v *= 100
	}
	percent = int32(v + 0.5)
	if err != nil || !(v >= 0 && v <= 100) || v-float64(percent) > 1e-9 || float64(percent)-v > 1e-9 {
		return 0, plimsoll.Invalid(
			flag, "%q is not a part; write a whole percentage from 0%% to 100%%, such as 10%% or 0.1", text,
		)
	}
	return percent, nil
}
