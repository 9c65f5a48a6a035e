package triton

import "github.com/plimsoll-dev/plimsoll/placement"

// With returns the profile for another fleet, which uses names. It has the same records and its own
// stages. Both profiles share the records, so read no more of them with either.
//
//	stages, err := profile.With(fleet.Names) // then NewChain(…, stages.Stages(), …)
func (p *Profile) With(names *placement.Names) (*Profile, error) {
	own, err := New(names)
	if err != nil {
		return nil, err
	}
	with := *p
	with.hvm, with.volumes = own.hvm, own.volumes
	return &with, nil
}
