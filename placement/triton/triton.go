// Package triton is a profile of package placement for fleets that are described by Triton's
// records: the servers of CNAPI, the machines of VMAPI, packages, images, provisioning tickets and
// the defaults of its designation.
//
// A Profile reads those records into servers, instances, requests, tickets and settings, and gives
// the stages in which Triton's arithmetic is its own: what is free on a server (whole MiB and
// percents, memory of hardware virtual machines that is not over-provisioned, a ZFS pool with
// quotas that are partly filled) and what a package without a ratio may use. All other stages are
// those of package placement; for them the profile renames fields and converts units only.
//
// It owns nothing, is pure, and belongs to the fleet whose names it was made with. It keeps a few
// numbers for each server that it read. It agrees with the original as far as the conformance test
// of package placement says.
package triton

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	milliPercent = 10 // thousandths of a core in a percent of one

	kvmOverhead   = 1024 * mib // memory that a kvm machine takes beside its own
	bhyveOverhead = 1280 * mib
	kvmQuota      = 10 * gib // what the zone of a kvm machine may fill of the pool
	diskReserve   = 10240    // MiB that every request leaves free
	poolShare     = 0.94     // of a pool that can be used

	defaultLimit = 224 // instances on a server
)

// Resource names beside cpu, memory and disk: amounts that over-provisioning does not stretch. What
// is booked as disk is what tickets add to quotas; the quotas of machines that exist stand in the
// record of the server.
const (
	HVMMemory = "triton/hvm-memory" // bytes, of hardware virtual machines
	Volumes   = "triton/volumes"    // bytes of the pool, of kvm machines
)

// Profile reads the records of one fleet.
type Profile struct {
	// TextReleases makes the stages compare releases as texts, as the original does: "10.0" is
	// older than "7.0" then. Otherwise they compare as numbers. Set it before Stages is called.
	TextReleases bool

	hvm, volumes int                // indexes of the two names of resources
	override     map[string]float64 // ratios that stand for those of all servers and packages; nil: none do
	hosts        map[string]host    // by server id
}

// host is what the free room of a server is calculated from.
type host struct {
	described bool    // it has sysinfo
	ratios    bool    // it has a set of ratios, maybe an empty one
	cores     float64 // cpus
	memory    float64 // bytes
	reserve   float64 // part of the memory that is kept back
	pool      float64 // bytes of the ZFS pool that can be used
	fixed     float64 // of them, what images, cores, the system and volumes take
	quota     float64 // of them, what zones may take
	filled    float64 // of the quotas, what zones have taken
	alloc     float64 // of them, what is taken by all
}

// New returns a profile for the fleet that uses names.
func New(names *placement.Names) (*Profile, error) {
	own := plimsoll.Resources{HVMMemory: 0, Volumes: 0}
	if err := names.Check("names", own); err != nil {
		return nil, err
	}
	names.Amounts(own)
	return &Profile{hvm: names.Index(HVMMemory), volumes: names.Index(Volumes), hosts: map[string]host{}}, nil
}

// Override makes the profile use the same ratios for all servers and packages that it reads from
// now on, as the product does unless the defaults say disable_override_overprovisioning: cpu 4,
// memory 1 and disk 1, or the overprovision_ratio_ of the defaults.
func (p *Profile) Override(defaults []byte) error {
	d, err := readObject("defaults", defaults)
	if err != nil {
		return err
	}
	p.override = nil
	if truthy(d["disable_override_overprovisioning"]) {
		return nil
	}
	p.override = map[string]float64{plimsoll.CPU: 4, plimsoll.Memory: 1, plimsoll.Disk: 1}
	for _, r := range ratioNames[:3] {
		if n := number(d["overprovision_ratio_"+r.server]); n > 0 {
			p.override[r.name] = n
		}
	}
	return nil
}

// ratioNames are the names of ratios, as servers, packages and this module have them.
var ratioNames = [...]struct{ server, pack, old, name string }{
	{"cpu", "overprovision_cpu", "", plimsoll.CPU},
	{"ram", "overprovision_ram", "overprovision_memory", plimsoll.Memory},
	{"disk", "overprovision_disk", "overprovision_storage", plimsoll.Disk},
	{"io", "overprovision_io", "", "io"},
	{"net", "overprovision_net", "overprovision_network", "net"},
}

// object is a JSON object that is read leniently, as the original does: a field of a wrong type is
// as good as none.
type object = map[string]any

// number returns a number, or a text that is one; 0 if it is neither.
func number(v any) float64 {
	switch n := v.(type) {
	case float64:
		return n
	case string:
		if f, err := strconv.ParseFloat(n, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	}
	return 0
}

// amount is a number of units as an amount of bytes or milli-cores: at most the largest one, and 0
// for what is no amount.
func amount(v any, unit float64) int64 {
	if n := number(v) * unit; n > 0 {
		return int64(math.Ceil(min(n, float64(plimsoll.MaxAmount))))
	}
	return 0
}

// truthy is what JavaScript takes for true.
func truthy(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case float64:
		return x != 0 && !math.IsNaN(x)
	case string:
		return x != ""
	}
	return true
}

// off reports whether a switch of the defaults is there and not on.
func off(d object, key string) bool {
	v, ok := d[key]
	return ok && (!truthy(v) || v == "false")
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func sub(v any) object {
	o, _ := v.(object)
	return o
}

// seconds returns a time in Unix seconds; 0 if there is none.
func seconds(v any) int64 {
	if t, err := time.Parse(time.RFC3339, text(v)); err == nil {
		return t.Unix()
	}
	return 0
}

func wrong(field string, err error) error {
	return plimsoll.Invalid(field, "is not understood: %s", fmt.Sprint(err))
}
