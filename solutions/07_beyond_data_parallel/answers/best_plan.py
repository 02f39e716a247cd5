"""Known mistakes of exercise best_plan, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "memory_forgotten": (
        "The fastest plan is returned, whether it fits or not. Leave out plans with more bytes than `job.memory`.",
        ("        if n_bytes(job, plan) > job.memory:\n            continue\n", ""),
    ),
    "strictly_smaller": (
        "A plan with as many bytes as the memory has fits. Compare with <=.",
        ("n_bytes(job, plan) > job.memory", "n_bytes(job, plan) >= job.memory"),
    ),
    "first_that_fits": (
        "The first plan that fits is returned. Compare the seconds of all.",
        (
            "return min(fitting, key=lambda plan: (seconds(job, plan), n_bytes(job, plan)))",
            "return fitting[0]",
        ),
    ),
    "slowest": (
        "The slowest plan is returned. Take the fewest seconds.",
        ("return min(", "return max("),
    ),
    "fewest_bytes": (
        "The plan with the fewest bytes is returned. Take the fewest seconds; bytes only decide between equals.",
        ("(seconds(job, plan), n_bytes(job, plan))", "(n_bytes(job, plan), seconds(job, plan))"),
    ),
    "no_tie_break": (
        "Of two plans that are as fast, the one with fewer bytes leaves more room. Compare bytes, too.",
        ("(seconds(job, plan), n_bytes(job, plan))", "seconds(job, plan)"),
    ),
    "heads_forgotten": (
        "Tensor ranks share the heads. Their number divides the number of heads.",
        ("job.gpt.heads % plan.tensor or ", ""),
    ),
    "none_if_nothing_is_left": (
        "Where no plan runs and fits, None is returned. Raise ValueError, so that nobody trains without a plan.",
        (
            '        raise ValueError("no plan runs and fits; take more devices or a smaller model.")',
            "        return None",
        ),
    ),
    "width_for_heads": (
        "Tensor ranks that divide the width are let through. A head lies on one rank: they must divide the heads.",
        ("job.gpt.heads % plan.tensor", "job.gpt.width % plan.tensor"),
    ),
    "layers_forgotten": (
        "Pipeline ranks share the layers. Their number divides the number of layers.",
        ("job.gpt.layers % plan.pipeline or ", ""),
    ),
    "rows_forgotten": (
        "Data ranks and micro-batches share the rows. Their product divides the number of rows.",
        ("job.rows % (plan.data * plan.micro_batches)", "False"),
    ),
    "micro_batches_forgotten": (
        "The micro-batches share the rows of a data rank. The product of both divides the number of rows.",
        ("job.rows % (plan.data * plan.micro_batches)", "job.rows % plan.data"),
    ),
    "stages_with_a_pipeline": (
        "Stages 2 and 3 run without a pipeline here. Leave out such plans with more than one pipeline rank.",
        ("if plan.stage >= 2 and plan.pipeline > 1:", "if plan.stage > 3:"),
    ),
    "no_stage_with_a_pipeline": (
        "Stage 1 runs with a pipeline: it shards the optimizer alone. Leave out stages 2 and 3.",
        ("plan.stage >= 2", "plan.stage >= 1"),
    ),
    "stage_two_with_a_pipeline": (
        "Stage 2 does not run with a pipeline here, as stage 3 does not. Leave out both.",
        ("plan.stage >= 2", "plan.stage == 3"),
    ),
    "stage_three_alone": (
        "Stages 2 and 3 are left out without a pipeline, too. Only a pipeline of more than one rank rules them out.",
        ("plan.stage >= 2 and plan.pipeline > 1", "plan.stage >= 2"),
    ),
}


@mistake(
    "If no plan is left, the first one is returned. Raise ValueError, because it does not run or does not fit."
)
def the_first_if_none(job, plans, n_bytes, seconds):
    def runs(plan):
        divides = job.gpt.heads % plan.tensor == 0 and job.gpt.layers % plan.pipeline == 0
        return (
            divides
            and job.rows % (plan.data * plan.micro_batches) == 0
            and (plan.stage < 2 or plan.pipeline == 1)
        )

    left = [plan for plan in plans if runs(plan) and n_bytes(job, plan) <= job.memory]
    return min(left, key=lambda plan: (seconds(job, plan), n_bytes(job, plan)), default=plans[0])


@alternative
def sorted_by_cost(job, plans, n_bytes, seconds):
    costs = []
    for number, plan in enumerate(plans):
        whole = job.gpt.heads % plan.tensor == job.gpt.layers % plan.pipeline == 0
        shared = job.rows % (plan.data * plan.micro_batches) == 0
        room = n_bytes(job, plan) <= job.memory
        if whole and shared and room and not (plan.pipeline > 1 and plan.stage > 1):
            costs.append((seconds(job, plan), n_bytes(job, plan), number))
    if not costs:
        raise ValueError("no plan fits")
    return plans[sorted(costs)[0][2]]


@alternative
def best_so_far(job, plans, n_bytes, seconds):
    best = None
    for plan in plans:
        if job.gpt.heads % plan.tensor or job.gpt.layers % plan.pipeline:
            continue
        if job.rows % (plan.data * plan.micro_batches):
            continue
        if plan.pipeline > 1 and plan.stage in (2, 3) or n_bytes(job, plan) > job.memory:
            continue
        cost = seconds(job, plan), n_bytes(job, plan)
        if best is None or cost < best[0]:
            best = cost, plan
    if best is None:
        raise ValueError("no plan is left")
    return best[1]
