-- Limits as people set them; what is not named stays. `reset` forgets what the endpoint has shown: it is probed anew.
insert into autofill.provider (base_url, model, concurrency, requests_minute, tokens_minute)
values (%(base_url)s, %(model)s, %(concurrency)s, %(requests_minute)s, %(tokens_minute)s)
on conflict (base_url, model) do update set
    concurrency = case when %(sets_concurrency)s then excluded.concurrency else provider.concurrency end,
    requests_minute = case when %(sets_requests)s then excluded.requests_minute else provider.requests_minute end,
    tokens_minute = case when %(sets_tokens)s then excluded.tokens_minute else provider.tokens_minute end,
    proven_at = case when not %(reset)s then provider.proven_at end,
    cool_until = case when not %(reset)s then provider.cool_until end,
    ceiling = case when not %(reset)s then provider.ceiling end,
    rejected_before = case when not %(reset)s then provider.rejected_before end,
    background = case when %(reset)s then 0 else provider.background end,
    found_at = case when not %(reset)s then provider.found_at end;
