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

// What the kernel says of a network interface below /sys/class/net.
const (
	loopbackType = "772" // ARPHRD_LOOPBACK, in type
	flagUp       = 1     // IFF_UP, in flags
)

// networks returns what the node's networks are and whether they are up: those that are configured,
// each by the state of its interface, and the machine's interfaces that are up, by their own names.
// The loopback and the ends of containers' pairs (veth…) are not networks of the node, unless they
// are configured.
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
	for _, e := range entries { // in the order of the names, so that the same are left out if there are too many
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

// linkUp reports whether an interface is there and can be used. Some drivers do not say: then it
// counts that it is switched on (Linux, Documentation/networking/operstates.rst: unknown is to be
// taken as usable).
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

// link reads one thing of an interface; empty if there is no such interface.
func (m machine) link(name, what string) string {
	if name == "" || name != filepath.Base(name) || name == ".." {
		return ""
	}
	return group{dir: filepath.Join(m.root, "sys/class/net", name)}.read(what)
}

// bootTime is when the machine was started, in Unix seconds; 0 if the kernel does not say.
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

// facts adds what is measured to what is configured.
func (m machine) facts(cfg *Config) (facts plimsoll.NodeFacts, err error) {
	facts = cfg.Facts
	if facts.LastBoot == 0 {
		facts.LastBoot = m.bootTime()
	}
	facts.Networks, err = m.networks(cfg)
	return facts, err
}
