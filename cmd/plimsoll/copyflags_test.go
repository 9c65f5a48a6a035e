package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

func TestFlagsOfACopyBoundTheHistoryAndTheCaches(t *testing.T) {
	for _, c := range []struct {
		flags                   copyFlags
		history, cache, answers int
		field                   string // of the error; empty: none
	}{
		{copyFlags{}, 0, 0, 0, ""}, // the defaults of the two packages
		{copyFlags{"256Mi", "1Gi", "3Mi"}, 256 << 20, 1 << 30, 3 << 20, ""},
		{copyFlags{"1Mi", "0", "0"}, 1 << 20, 1, 1, ""},
		{copyFlags{"1023Ki", "", ""}, 0, 0, 0, "history-bytes"},
		{copyFlags{"much", "", ""}, 0, 0, 0, "history-bytes"},
		{copyFlags{"", "-1", ""}, 0, 0, 0, "json-cache-bytes"},
		{copyFlags{"", "2049Mi", ""}, 0, 0, 0, "json-cache-bytes"},
		{copyFlags{"", "", "-1"}, 0, 0, 0, "answer-cache-bytes"},
		{copyFlags{"", "", "2049Mi"}, 0, 0, 0, "answer-cache-bytes"},
		{copyFlags{"2Gi", "2Gi", "2Gi"}, 2 << 30, 2 << 30, 2 << 30, ""},
		{copyFlags{"3Gi", "", ""}, 0, 0, 0, "history-bytes"},
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
		if err != nil || follower.HistoryBytes != c.history || g.MaxJSONBytes != c.cache ||
			g.MaxSharedBytes != c.answers {
			t.Errorf("%+v: %d, %d and %d, %v", c.flags, follower.HistoryBytes, g.MaxJSONBytes, g.MaxSharedBytes, err)
		}
	}
}

// The help and the page of limits tell the defaults of the two packages.
func TestDefaultsOfACopyAreTheSameInCodeHelpAndPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field, flag string
		bytes       int64
	}{
		{"HistoryBytes", "--history-bytes", replica.DefaultHistoryBytes},
		{"JSONCacheBytes", "--json-cache-bytes", gateway.DefaultMaxJSONBytes},
	} {
		field, _ := reflect.TypeFor[copyFlags]().FieldByName(c.field)
		amount := plimsoll.FormatQuantity(plimsoll.Memory, c.bytes)
		if help := field.Tag.Get("help"); !strings.HasSuffix(help, "Default: "+amount+".") {
			t.Errorf("the help of %s does not end with the default %s: %s", c.flag, amount, help)
		}
		want := "`" + c.flag + "`; default: " + strings.Replace(amount, "Mi", " MiB", 1)
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/reference/limits.md does not say %q", want)
		}
	}
}
