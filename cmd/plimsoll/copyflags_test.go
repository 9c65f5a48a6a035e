package main

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

func TestFlagsOfACopyBoundTheHistoryAndTheCacheOfJSON(t *testing.T) {
	for _, c := range []struct {
		flags          copyFlags
		history, cache int
		field          string // of the error; empty: none
	}{
		{copyFlags{}, 0, 0, ""}, // the defaults of the two packages
		{copyFlags{"256Mi", "1Gi"}, 256 << 20, 1 << 30, ""},
		{copyFlags{"1Mi", "0"}, 1 << 20, 1, ""},
		{copyFlags{"1023Ki", ""}, 0, 0, "history-bytes"},
		{copyFlags{"much", ""}, 0, 0, "history-bytes"},
		{copyFlags{"", "-1"}, 0, 0, "json-cache-bytes"},
		{copyFlags{"", "2049Mi"}, 0, 0, "json-cache-bytes"},
		{copyFlags{"2Gi", "2Gi"}, 2 << 30, 2 << 30, ""},
		{copyFlags{"3Gi", ""}, 0, 0, "history-bytes"},
	} {
		var follower replica.FollowerConfig
		var g gateway.Config
		err := c.flags.within(&follower, &g, 4<<30)
		if c.field != "" {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%+v: %v", c.flags, err)
			}
			continue
		}
		if err != nil || follower.HistoryBytes != c.history || g.MaxJSONBytes != c.cache {
			t.Errorf("%+v: %d and %d, %v", c.flags, follower.HistoryBytes, g.MaxJSONBytes, err)
		}
	}
}
