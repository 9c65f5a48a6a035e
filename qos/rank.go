package qos

// Rank returns the tasks as indices in the order in which a rule on the metric would come to them, with what policies prefer and avoid, for
// people who want to see who would be next. nil is a metric that nobody registered: class and priority alone count.
func (p *Policies) Rank(s *Snapshot, m *Metric) []int32 {
	r := newRound(s, p, NewLedger(), s.At)
	r.stand()
	if m == nil {
		return r.rankOrder()
	}
	return r.order(m)
}
