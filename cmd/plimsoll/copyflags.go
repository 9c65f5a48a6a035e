package main

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/memory"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// leastHistory is the least bound on the changes that are kept for watches. One turn of the
// coordinator can make that many.
const leastHistory = 1 << 20

// copyFlags bound what a gateway keeps beside its copy of the state.
type copyFlags struct {
	HistoryBytes     string `help:"Most memory of the changes from which watches can resume, such as 256Mi; 1Mi to half of the memory limit. Default: 32Mi." env:"PLIMSOLL_HISTORY_BYTES" placeholder:"AMOUNT"`
	JSONCacheBytes   string `name:"json-cache-bytes" help:"Most memory of records that are kept as JSON for answers; at most half of the memory limit. 0: none is kept. Default: 64Mi." env:"PLIMSOLL_JSON_CACHE_BYTES" placeholder:"AMOUNT"`
	AnswerCacheBytes string `name:"answer-cache-bytes" help:"Most memory of whole answers that readers of the same question share; at most half of the memory limit. 0: none is shared. Default: a 64th of the memory limit, from 16Mi to 64Mi." env:"PLIMSOLL_ANSWER_CACHE_BYTES" placeholder:"AMOUNT"`
}

// apply sets the bounds in the configurations of the two parts of a gateway.
func (f *copyFlags) apply(follower *replica.FollowerConfig, g *gateway.Config) error {
	limit, known := memory.Limit()
	if !known {
		limit = math.MaxInt64
	}
	return f.within(follower, g, int64(min(limit, math.MaxInt64)))
}

// within is apply for a given limit of memory. Each amount may be half of it.
func (f *copyFlags) within(follower *replica.FollowerConfig, g *gateway.Config, limit int64) (err error) {
	if f.HistoryBytes != "" {
		if follower.HistoryBytes, err = amountOfBytes(
			"--history-bytes", f.HistoryBytes, leastHistory, limit/2,
		); err != nil {
			return err
		}
	}
	if f.JSONCacheBytes != "" {
		if g.MaxJSONBytes, err = amountOfBytes("--json-cache-bytes", f.JSONCacheBytes, 0, limit/2); err != nil {
			return err
		}
		g.MaxJSONBytes = max(g.MaxJSONBytes, 1) // 0 stands for the default there, and a byte holds no record
	}
	if f.AnswerCacheBytes != "" {
		if g.MaxSharedBytes, err = amountOfBytes("--answer-cache-bytes", f.AnswerCacheBytes, 0, limit/2); err != nil {
			return err
		}
		g.MaxSharedBytes = max(g.MaxSharedBytes, 1) // as above
	}
	return nil
}

// amountOfBytes reads the amount of a flag.
func amountOfBytes(flag, text string, least, most int64) (int, error) {
	most &^= 1<<20 - 1 // a round number for the error
	bytes, err := plimsoll.ParseQuantity(plimsoll.Memory, text)
	switch {
	case err != nil:
		return 0, plimsoll.Invalid(flag, "%s", err)
	case bytes < least:
		return 0, plimsoll.Invalid(
			flag, "is %s; give at least %s", text, plimsoll.FormatQuantity(plimsoll.Memory, least),
		)
	case bytes > most:
		return 0, plimsoll.Invalid(
			flag, "is %s; give at most %s, half of the memory that this process may take", text,
			plimsoll.FormatQuantity(plimsoll.Memory, most),
		)
	}
	return int(bytes), nil
}
