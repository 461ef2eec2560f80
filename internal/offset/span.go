package offset

import "slices"

// Span is a part of the log or of a queue: [From, To).
type Span[T Physical | Queue] struct {
	From T `json:"from"`
	To   T `json:"to"`
}

// Has says whether an offset is in it.
func (s Span[T]) Has(at T) bool { return s.From <= at && at < s.To }

// With adds a span to others that are in order, as one with those that it touches. It may change the list.
func With[T Physical | Queue](list []Span[T], add Span[T]) []Span[T] {
	i := 0
	for i < len(list) && list[i].To < add.From {
		i++
	}
	n := i
	for n < len(list) && list[n].From <= add.To {
		add = Span[T]{min(add.From, list[n].From), max(add.To, list[n].To)}
		n++
	}
	return slices.Replace(list, i, n, add)
}

// Without is what is left of spans, which are in order, when others are taken out.
func Without[T Physical | Queue](list []Span[T], others ...Span[T]) []Span[T] {
	for _, o := range others {
		var rest []Span[T]
		for _, s := range list {
			for _, part := range [...]Span[T]{{s.From, min(s.To, o.From)}, {max(s.From, o.To), s.To}} {
				if part.From < part.To {
					rest = append(rest, part)
				}
			}
		}
		list = rest
	}
	return list
}
