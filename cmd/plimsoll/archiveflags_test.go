package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	working "github.com/plimsoll-dev/plimsoll/internal/state"
)

// The flags become the configuration of the archive. A wrong one is refused by its name.
func TestFlagsOfTheArchive(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		flags archiveFlags
		want  dev.ArchiveConfig
		field string // that is refused
	}{
		{archiveFlags{}, dev.ArchiveConfig{}, ""},
		{archiveFlags{Archive: "none"}, dev.ArchiveConfig{None: true}, ""},
		{archiveFlags{Archive: "/a/jobs.db"}, dev.ArchiveConfig{File: "/a/jobs.db"}, ""},
		{archiveFlags{ArchiveAccept: "x"}, dev.ArchiveConfig{Accept: "x"}, ""},
		{
			archiveFlags{ArchiveAge: hour},
			dev.ArchiveConfig{Retention: archive.Retention{Age: hour, FailedAge: 2 * hour}},
			"",
		},
		{
			archiveFlags{ArchiveAge: hour, ArchiveFailedAge: 3 * hour, ArchiveJobs: 7, ArchiveBytes: "1Gi"},
			dev.ArchiveConfig{
				Retention: archive.Retention{Age: hour, FailedAge: 3 * hour, Jobs: 7, Bytes: 1 << 30},
			},
			"",
		},
		{archiveFlags{Archive: "none", ArchiveJobs: 7}, dev.ArchiveConfig{}, "--archive"},
		{archiveFlags{ArchiveAge: -1}, dev.ArchiveConfig{}, "--archive-age"},
		{archiveFlags{ArchiveAge: 2, ArchiveFailedAge: 1}, dev.ArchiveConfig{}, "--archive-failed-age"},
		{archiveFlags{ArchiveJobs: -1}, dev.ArchiveConfig{}, "--archive-jobs"},
		{archiveFlags{ArchiveBytes: "0"}, dev.ArchiveConfig{}, "--archive-bytes"},
		{archiveFlags{ArchiveBytes: "much"}, dev.ArchiveConfig{}, "--archive-bytes"},
		{archiveFlags{KeepEnded: -1}, dev.ArchiveConfig{}, "--keep-ended"},
	} {
		var state working.Config
		got, err := c.flags.parse(&state)
		if c.field != "" {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%+v: %v", c.flags, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.flags, got, err)
		}
	}
	var state working.Config
	_, err := (&archiveFlags{KeepEnded: time.Minute}).parse(&state)
	if err != nil || state.KeepEnded != int64(time.Minute) {
		t.Errorf("%d ns, %v", state.KeepEnded, err)
	}
}

// The page of limits tells the defaults of the code.
func TestDefaultsOfTheArchiveAreTheSameInCodeAndPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"`" + strings.TrimSuffix(working.DefaultKeepArchived.String(), "0s") + "`; with `--archive none` `" +
			strings.TrimSuffix(working.DefaultKeepEnded.String(), "0m0s") + "`",
		"at most `" + plimsoll.FormatQuantity(plimsoll.Disk, dev.MaxArchiveBytes) + "`",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/reference/limits.md does not say %s", want)
		}
	}
}
