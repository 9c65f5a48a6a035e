package main

import (
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCmd struct {
	formatFlag
}

// Help is the detail of the help text.
func (versionCmd) Help() string { return example("plimsoll version -o json") }

type versionView struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // built with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is the output of git describe. make build sets it: -ldflags "-X main.version=…".
var version string

// buildVersion returns the facts about this binary from make build and the Go tool.
func buildVersion() versionView {
	v := versionView{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		v.Version = version
	case ok && info.Main.Version != "":
		v.Version = info.Main.Version
	}
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// Run prints the version.
func (cmd *versionCmd) Run(a *app) error {
	v := buildVersion()
	return cmd.print(a, v, func(o *output) {
		var line strings.Builder
		_ = writeVersion(&line, v) // into memory
		o.printf("%s", line.String())
	})
}
