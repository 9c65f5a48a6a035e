package main

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
)

// logsFlags belong to the commands that make this machine a node. They bound what attempts leave on
// its disk.
type logsFlags struct {
	LogsBytes     string        `help:"Most disk of the logs, records and files that attempts leave when they have ended; each counts as 64Ki at least. When there is more, the oldest attempts that succeeded go first, then the oldest failed ones. Default: 2Gi." env:"PLIMSOLL_LOGS_BYTES" placeholder:"AMOUNT"`
	LogsAge       time.Duration `help:"How long they are kept after an attempt that succeeded. Default: 168h." env:"PLIMSOLL_LOGS_AGE" placeholder:"DURATION"`
	FailedLogsAge time.Duration `help:"How long they are kept after an attempt that failed, was killed or was lost; at least --logs-age. Default: 720h." env:"PLIMSOLL_FAILED_LOGS_AGE" placeholder:"DURATION"`
}

// parse returns the bounds; zero stands for the agent's default.
func (f *logsFlags) parse() (b agent.LogBounds, err error) {
	if f.LogsBytes != "" {
		b.Bytes, err = plimsoll.ParseQuantity(plimsoll.Disk, f.LogsBytes)
		if err != nil {
			return b, plimsoll.Invalid("--logs-bytes", "%s", err)
		}
		if b.Bytes < agent.AttemptBytes {
			return b, plimsoll.Invalid(
				"--logs-bytes", "is %s; give at least %s, as one attempt counts", f.LogsBytes,
				plimsoll.FormatQuantity(plimsoll.Disk, agent.AttemptBytes),
			)
		}
	}
	b.Age, b.FailedAge = f.LogsAge, f.FailedLogsAge
	least := agent.DefaultLogsAge
	if b.Age != 0 {
		least = b.Age
	}
	switch {
	case b.Age < 0:
		return b, plimsoll.Invalid("--logs-age", "is %v; give a duration such as 168h", b.Age)
	case b.FailedAge < 0, b.FailedAge != 0 && b.FailedAge < least:
		return b, plimsoll.Invalid(
			"--failed-logs-age", "is %v; give at least %v, for which attempts that succeeded are kept", b.FailedAge,
			least,
		)
	}
	return b, nil
}
