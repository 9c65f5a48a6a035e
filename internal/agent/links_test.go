package agent

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
)

// links are the files of interfaces below /sys/class/net, each given as operstate, type and flags.
func links(of map[string][3]string) map[string]string {
	files := map[string]string{}
	for name, state := range of {
		for i, what := range []string{"operstate", "type", "flags"} {
			files["sys/class/net/"+name+"/"+what] = state[i] + "\n"
		}
	}
	return files
}

// Interfaces that are up are networks of the node, and so are the configured ones, up or not.
func TestNetworks(t *testing.T) {
	m := fakeMachine(t, links(map[string][3]string{
		"lo": {"unknown", "772", "0x9"}, "eth0": {"up", "1", "0x1003"}, "eth1": {"down", "1", "0x1002"},
		"veth1a2b": {"up", "1", "0x1003"},
		"tun0":     {"unknown", "65534", "0x1091"}, "tun1": {"unknown", "65534", "0x1090"},
		"wlan0": {"dormant", "1", "0x1003"},
	}))
	for _, test := range []struct {
		name string
		cfg  Config
		want map[string]bool
	}{
		{"measured alone", Config{}, map[string]bool{"eth0": true, "tun0": true}},
		{
			"names for interfaces",
			Config{Networks: map[string]string{"external": "eth0", "storage": "eth1", "lost": "eth7", "local": "lo"}},
			map[string]bool{
				"eth0": true, "tun0": true, "external": true, "storage": false, "lost": false, "local": true,
			},
		},
		{
			"an interface by its own name is there even when it is down",
			Config{Networks: map[string]string{"eth1": "", "veth1a2b": "", "../eth0": "", "..": ""}},
			map[string]bool{"eth0": true, "tun0": true, "eth1": false, "veth1a2b": true, "../eth0": false, "..": false},
		},
		{
			"a name may stand for another interface",
			Config{Networks: map[string]string{"eth0": "eth1"}},
			map[string]bool{"eth0": false, "tun0": true},
		},
		{
			"what is configured as a fact stays",
			Config{Facts: plimsoll.NodeFacts{Networks: map[string]bool{"vpn": true, "tun0": false}}},
			map[string]bool{"eth0": true, "tun0": false, "vpn": true},
		},
	} {
		got, err := m.networks(&test.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// A machine with more interfaces than a node may name can still be a node.
func TestManyInterfaces(t *testing.T) {
	of := map[string][3]string{}
	for i := range plimsoll.MaxNodeNetworks + 50 {
		of[fmt.Sprintf("eth%03d", i)] = [3]string{"up", "1", "0x1003"}
	}
	m := fakeMachine(t, links(of))
	cfg := Config{Networks: map[string]string{"external": "eth305"}}
	got, err := m.networks(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != plimsoll.MaxNodeNetworks || !got["external"] || !got["eth000"] || got["eth305"] {
		t.Errorf("%d networks: %v", len(got), got)
	}
	again, err := m.networks(&cfg)
	if err != nil || !maps.Equal(got, again) {
		t.Errorf("measured again they are %v, %v", again, err)
	}
}

// A machine without /sys or /proc has only the configured networks, and its last boot is unknown.
func TestFactsOfABareMachine(t *testing.T) {
	facts, err := fakeMachine(t, nil).facts(
		&Config{Networks: map[string]string{"external": "eth0"}, Facts: plimsoll.NodeFacts{Release: "7.0"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := plimsoll.NodeFacts{Release: "7.0", Networks: map[string]bool{"external": false}}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBootTime(t *testing.T) {
	for content, want := range map[string]int64{
		"cpu  1 2 3\nbtime 1795217950\nprocesses 5\n": 1795217950, "": 0, "btime soon\n": 0, "btime -5\n": 0,
	} {
		if got := fakeMachine(t, map[string]string{"proc/stat": content}).bootTime(); got != want {
			t.Errorf("%q: %d, want %d", content, got, want)
		}
	}
	facts, err := fakeMachine(t, map[string]string{"proc/stat": "btime 7\n"}).facts(
		&Config{Facts: plimsoll.NodeFacts{LastBoot: 5}},
	)
	if err != nil || facts.LastBoot != 5 {
		t.Errorf("what is configured became %d, %v", facts.LastBoot, err)
	}
}
