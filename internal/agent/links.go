package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Values of the kernel's files below /sys/class/net.
const (
	loopbackType = "772" // ARPHRD_LOOPBACK, in type
	flagUp       = 1     // IFF_UP, in flags
)

// networks returns the node's networks, each with true if it is up. They are the configured
// networks, each by the state of its interface, and the machine's other interfaces that are up. The
// loopback and the ends of containers' pairs (veth…) count only if they are configured.
func (m machine) networks(cfg *Config) (map[string]bool, error) {
	found := make(map[string]bool, len(cfg.Networks)+len(cfg.Facts.Networks))
	maps.Copy(found, cfg.Facts.Networks)
	for name, link := range cfg.Networks {
		if link == "" {
			link = name
		}
		found[name] = m.linkUp(link)
	}
	entries, err := os.ReadDir(filepath.Join(m.root, "sys/class/net"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	// In the order of names, so that a surplus always leaves out the same.
	for _, e := range entries {
		name := e.Name()
		if _, known := found[name]; known || len(found) >= plimsoll.MaxNodeNetworks {
			continue
		}
		if strings.HasPrefix(name, "veth") || m.link(name, "type") == loopbackType || !m.linkUp(name) {
			continue
		}
		found[name] = true
	}
	return found, nil
}

// linkUp reports whether an interface exists and is usable. Some drivers do not report their state.
// Then an interface that is switched on counts as usable (Linux,
// Documentation/networking/operstates.rst).
func (m machine) linkUp(name string) bool {
	switch m.link(name, "operstate") {
	case "up":
		return true
	case "unknown":
		flags, err := strconv.ParseUint(strings.TrimPrefix(m.link(name, "flags"), "0x"), 16, 64)
		return err == nil && flags&flagUp != 0
	}
	return false
}

// link reads one file of an interface; empty if there is no such interface.
func (m machine) link(name, what string) string {
	if name == "" || name != filepath.Base(name) || name == ".." {
		return ""
	}
	return group{dir: filepath.Join(m.root, "sys/class/net", name)}.read(what)
}

// bootTime returns the machine's start in Unix seconds; 0 if the kernel does not report it.
func (m machine) bootTime() int64 {
	data, err := os.ReadFile(filepath.Join(m.root, "proc/stat"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			return max(number(strings.TrimSpace(rest)), 0)
		}
	}
	return 0
}

// facts combines the configured and the measured facts.
func (m machine) facts(cfg *Config) (facts plimsoll.NodeFacts, err error) {
	facts = cfg.Facts
	if facts.LastBoot == 0 {
		facts.LastBoot = m.bootTime()
	}
	facts.Networks, err = m.networks(cfg)
	return facts, err
}
