package placement

// commonPart is what a server gains at most by being of a kind that there is much of, in parts of
// the weight.
const commonPart = 0.02

// scoreStranded takes from the score of a server what the placement would strand there of custom
// resources, and adds what it would use up of what is stranded, in parts of what the server has.
//
// A part of a custom resource is stranded when so little cpu or memory is left beside it that
// nobody can use it: of a server with 80 % of its gpus free but 30 % of its cpu, half the gpus. So
// a request that asks for no gpu goes to servers without gpus, or with gpus in use, and one that
// asks for much cpu and one gpu to servers that have much cpu for each gpu. Servers on which
// nothing would be stranded are alike; the scores by free memory then fill one after the other.
//
// A request for a custom resource also leaves servers of which there are few alike alone, a little,
// because some requests can use only those.
func scoreStranded(b *Batch, set []int32) {
	weight, f := b.chain.Settings.Weights.UnreservedCustom, b.fleet
	if weight == 0 || f.Names.Len() == firstCustom {
		return
	}
	for _, i := range set {
		v := b.At(i)
		sum := 0.0
		for k := firstCustom; k < f.Names.Len(); k++ {
			if v.class.whole[k] > 0 {
				sum += v.stranded(k, 0) - v.stranded(k, 1)
			}
		}
		b.score[i] += float64(sum * weight)
	}
	if len(b.p.custom) > 0 {
		b.common(set, commonPart*weight)
	}
}

// common adds the weight to the servers of which there are the most alike in the set, and the less
// of it to others the fewer there are.
func (b *Batch) common(set []int32, weight float64) {
	order := b.ranked(set, func(v *View) uint64 { return uint64(v.row.class) })
	most, from := 0, 0
	for i := range order {
		if order[i].key != order[from].key {
			from = i
		}
		most = max(most, i+1-from)
	}
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && order[to].key == order[from].key {
			to++
		}
		for _, r := range order[from:to] {
			b.score[r.at] += float64(float64(to-from) / float64(most) * weight)
		}
		from = to
	}
}

// stranded returns the part of a resource that is free without cpu or memory beside it, after so
// many instances of the request.
func (v *View) stranded(resource int, instances int64) float64 {
	beside := min(v.part(IndexCPU, instances), v.part(IndexMemory, instances))
	return max(0, v.part(resource, instances)-beside)
}

// part returns which part of a resource is free after so many instances of the request; all of it
// if the server has none of it.
func (v *View) part(resource int, instances int64) float64 {
	whole := v.class.free(resource, 0)
	if whole <= 0 {
		return 1
	}
	return max(0, float64(v.Free(resource)-instances*v.p.needs[resource])/float64(whole))
}
