"""Speed against peers and against the machine's bound, printed only where the numbers were right first.

    python -m benchmarks [--only PATTERN] [--quick] [--readme [FILE]]

    device      where it runs: clock, memory meter, measured rates, description
    gate        correctness before speed: the tolerance rule of aclgrad.testing against float64
    bars        what every row has to reach, as data
    timing      contenders take turns              quiet       other programs on the same cores
    runner      cases × dtypes → rows              overhead    tiny calls, and alternation with torch.mm
    sweep       time against size                  report      all results, to and from JSON
    terminal, plot, markdown                       three views of a report

Cases, costs, peers, references and tolerances belong to the package; a new operator or case appears here by itself.
"""
