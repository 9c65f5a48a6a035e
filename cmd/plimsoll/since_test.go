package main

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

func TestSinceIsATimeAgoOrAnInstant(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ text, want string }{
		{"10m", "2026-11-23T11:50:00Z"},
		{"7d", "2026-11-16T12:00:00Z"},
		{"1d12h", "2026-11-22T00:00:00Z"},
		{"0s", "2026-11-23T12:00:00Z"},
		{"2026-11-20", "2026-11-20T00:00:00Z"},
		{"2026-11-20T10:30:00", "2026-11-20T10:30:00Z"},
		{"2026-11-20T10:30:00+02:00", "2026-11-20T08:30:00Z"},
		{"2026-11-20T10:30", "2026-11-20T10:30:00Z"},
		{"2026-11-20T10:30Z", "2026-11-20T10:30:00Z"},
		{"11:30", "2026-11-23T11:30:00Z"},
		{"11:30:15", "2026-11-23T11:30:15Z"},
		{"12:00:01", "2026-11-22T12:00:01Z"}, // of yesterday: it is not so late yet
	} {
		got, err := sinceFlag{Since: tc.text}.since(now)
		if err != nil || got.UTC().Format(time.RFC3339) != tc.want {
			t.Errorf("--since %s is %s, %v; want %s", tc.text, got.UTC().Format(time.RFC3339), err, tc.want)
		}
	}
	for _, text := range []string{
		"yesterday", "7", "-5m", "d", "7d-1h", "99999999d", "100000d1h", "2026-13-01", "25:00",
	} {
		_, err := sinceFlag{Since: text}.since(now)
		if err == nil || !strings.Contains(err.Error(), "write for example 10m") {
			t.Errorf("--since %s: %v", text, err)
		}
	}
	if got, err := (sinceFlag{}).since(now); err != nil || !got.IsZero() {
		t.Errorf("without --since: %s, %v", got, err)
	}
}

// An instant that does not fit into Unix nanoseconds would wrap around to another one.
func TestInstantsOutOfRangeAreRefused(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{"1969-12-31", "0001-01-01", "1600-05-01T10:00", "2300-01-01", "9999-12-31"} {
		_, err := instant("time", text, now)
		if err == nil || !strings.Contains(err.Error(), "between 1970 and 2262") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got, err := instant("time", "90000d", now); err != nil || got.UnixNano() != 1 {
		t.Errorf("longer ago than 1970 is %v, %v", got, err)
	}
}

// Each text is refused with the name of its field, or is an instant that Unix nanoseconds hold. Its
// own form leads to it again.
func FuzzInstant(f *testing.F) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, seed := range []string{
		"", "10m", "7d", "1d12h", "100000d", "2026-11-20", "2026-11-20T10:00", "2026-11-20T10:00:00.5+02:00",
		"0000-01-01", "9999-12-31T23:59:59Z", "-5m", "1e3d", "2026-11-20 10:00", "292y",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := instant("time", text, now)
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "time") ||
				len(err.Error()) > 600 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if at.IsZero() {
			if text != "" {
				t.Fatalf("%q is no instant, and no error", text)
			}
			return
		}
		if nanos := at.UnixNano(); nanos <= 0 || !time.Unix(0, nanos).Equal(at) {
			t.Fatalf("%q is %v, which %d ns are not", text, at, nanos)
		}
		if again, err := instant("time", at.Format(time.RFC3339Nano), now); err != nil || !again.Equal(at) {
			t.Fatalf("%q is %v; its form leads to %v, %v", text, at, again, err)
		}
	})
}

// Nodes measure --since of logs by their own clocks, so it is sent as a time ago.
func TestAgeIsTheTimeSinceAnInstant(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "10m": 10 * time.Minute, "1d": 24 * time.Hour, "2026-11-20T10:00": 74 * time.Hour,
		"2026-11-23T11:00:00Z": time.Hour, "0s": 1, "2026-11-24": 1,
	} {
		if got, err := (sinceFlag{Since: text}).age(now); err != nil || got != want {
			t.Errorf("--since %s is %s ago, %v; want %s", text, got, err, want)
		}
	}
	if _, err := (sinceFlag{Since: "x"}).age(now); err == nil {
		t.Error("--since x is no error")
	}
}
