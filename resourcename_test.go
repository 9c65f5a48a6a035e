package plimsoll_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// The sentence lists the known names, and suggests the one that is probably meant.
func TestNoResourceSaysWhatIsKnownAndWhatMayBeMeant(t *testing.T) {
	known := []string{"memory", "cpu", "disk", "nvidia.com/gpu"}
	for _, c := range []struct{ name, want string }{
		{"nvidia.com/gpus", "no node has nvidia.com/gpus (known: cpu, disk, memory, nvidia.com/gpu; did you mean nvidia.com/gpu?)"},
		{"gpu", "no node has gpu (known: cpu, disk, memory, nvidia.com/gpu; did you mean nvidia.com/gpu?)"},
		{"Nvidia.com/GPU", "no node has Nvidia.com/GPU (known: cpu, disk, memory, nvidia.com/gpu; did you mean nvidia.com/gpu?)"},
		{"memroy", "no node has memroy (known: cpu, disk, memory, nvidia.com/gpu; did you mean memory?)"},
		{"example.com/fpga", "no node has example.com/fpga (known: cpu, disk, memory, nvidia.com/gpu)"},
		{plimsoll.ExtCPU, "no node lends ext-cpu now"},
	} {
		if got := plimsoll.NoResource(c.name, known); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := plimsoll.NoResource("gpu", nil); got != "no node has gpu" {
		t.Errorf("with nothing known: %q", got)
	}
}

// The cause in the answer of a gateway says the same.
func TestTheCauseOfAMissingResourceSaysWhatIsKnown(t *testing.T) {
	known := []string{"cpu", "nvidia.com/gpu"}
	c := plimsoll.WaitCause{
		Code: plimsoll.WaitNoResource, Resource: "gpu", Known: plimsoll.KnownResources("gpu", known),
	}
	if got, want := c.String(), plimsoll.NoResource("gpu", known); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
