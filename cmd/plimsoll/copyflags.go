package main

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// leastHistory is the least bound on the changes that are kept for watches. One turn of the
// coordinator can make that many.
const leastHistory = 1 << 20

// copyFlags bound what a gateway keeps beside its copy of the state.
type copyFlags struct {
	HistoryBytes   string `help:"Most memory of the changes from which watches can resume, such as 256Mi; at least 1Mi. Default: 32Mi." env:"PLIMSOLL_HISTORY_BYTES" placeholder:"AMOUNT"`
	JSONCacheBytes string `name:"json-cache-bytes" help:"Most memory of records that are kept as JSON for answers; 0: none is kept. Default: 64Mi." env:"PLIMSOLL_JSON_CACHE_BYTES" placeholder:"AMOUNT"`
}

// apply sets the bounds in the configurations of the two parts of a gateway.
func (f *copyFlags) apply(follower *replica.FollowerConfig, g *gateway.Config) (err error) {
	if f.HistoryBytes != "" {
		if follower.HistoryBytes, err = amountOfBytes("history-bytes", f.HistoryBytes, leastHistory); err != nil {
			return err
		}
	}
	if f.JSONCacheBytes != "" {
		if g.MaxJSONBytes, err = amountOfBytes("json-cache-bytes", f.JSONCacheBytes, 0); err != nil {
			return err
		}
		g.MaxJSONBytes = max(g.MaxJSONBytes, 1) // 0 stands for the default there, and a byte holds no record
	}
	return nil
}

// amountOfBytes reads the amount of a flag.
func amountOfBytes(flag, text string, least int64) (int, error) {
	bytes, err := plimsoll.ParseQuantity(plimsoll.Memory, text)
	switch {
	case err != nil:
		return 0, plimsoll.Invalid(flag, "%s", err)
	case bytes < least || bytes > math.MaxInt:
		return 0, plimsoll.Invalid(
			flag, "is %s; give at least %s", text, plimsoll.FormatQuantity(plimsoll.Memory, least),
		)
	}
	return int(bytes), nil
}
