package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The busy time costs guests alone, and only as much as is needed; afterwards they have it back.
func TestTheProxyProtectsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), t.TempDir(), time.Second, &out); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		t.Log(text)
		for _, want := range []string{
			"throttled guest-1 limit none → limit 250 requests/s",
			"evicting guest-1 running → stopping",
			"restored guest-3 limit",
			"→ limit none",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("it does not say %q", want)
			}
		}
		if strings.Contains(text, "shop") {
			t.Error("the shop, which is guaranteed, was acted on")
		}
		if strings.Contains(text, "failed") {
			t.Error("something failed")
		}
		if n := strings.Count(text, "evicting"); n != 1 {
			t.Errorf("%d guests were evicted; one suffices", n)
		}
	})
}
